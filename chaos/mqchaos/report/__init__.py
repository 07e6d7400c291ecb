"""What a run comes to, for a person and for a program.

``judge``    runs the audit, a process of its own
``verdict``  what it found
``measure``  what a history says about time (pure)
``report``   both together
``chart``    the timeline (pure)
``page``     one HTML page
``display``  the terminal, while it runs
"""
