"""Conditions of a run's ordinary life, looked up in its history at the end.

``look``          by workload
``given``         what a group was given, of what was acknowledged (pure)
``handing_over``  how long queues pause when their reader changes (pure)
``administered``  the same while tools changed its topic and itself, and where keys went (pure)
"""
