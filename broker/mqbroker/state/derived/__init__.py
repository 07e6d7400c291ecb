"""Data derived from the log, mostly files, which can be rebuilt from it.

``indexing``       what a committed entry of messages adds to them (pure)
``many``           the same for many records of one topic, column by column (pure)
``properties``     what the properties of records say (pure)
``entry_index``    the result (pure)
``consume_queue``  the positions of each queue's messages in the log
``file_pool``      their open files
``key_index``      finds the messages that have a key
``keys``           the units of the key index (pure)
``schedule``       what waits, the earliest first (pure)
``units``          the checks of the units in both
"""
