"""Files that are derived from the log, and can be rebuilt from it.

``indexing``       what a committed entry of messages adds to them (pure)
``consume_queue``  the positions of each queue's messages in the log
``key_index``      finds the messages that have a key
``keys``           the units of the key index (pure)
``units``          the checks of the units in both
"""
