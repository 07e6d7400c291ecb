"""The content of a segment by its bytes, and facts about it that are known without a look.

``walk``        goes from one entry to the next: all checks use it (pure)
``tail``        reads a segment's bytes after a crash and says where the log ends (pure)
``scan``        reads a segment's bytes to the end, whatever is damaged on the way (pure)
``checkpoint``  what is known of sealed segments, so that a restart reads only the last ones
"""
