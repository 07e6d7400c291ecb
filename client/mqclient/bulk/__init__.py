"""Columns in, records out: many messages of one topic, without a `Message` for each.

``models``      what goes in, and what comes out (pure)
``columns``    from Arrow columns, or lists, to batches of finished records (pure)
``writer``      sends such batches, and waits while too much is under way
``staging``   stores them where no reader sees them, until their batch is decided
``deciding``  decides a batch, and lets what was staged for it become messages
"""
