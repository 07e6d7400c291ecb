"""Files that are made from the log, and can be made from it again.

``indexing``       what a committed entry of messages adds to them (pure)
``consume_queue``  where in the log the messages of each queue are
``key_index``      which messages have a key
``keys``           what it holds of each (pure)
``units``          the checked pieces that both consist of
"""
