"""The files of a log: which there are, what they hold, and whether there is room for the next one.

``segment``       one file: preallocated, written by position, read through a mapping
``contents``      which entries a log holds, and where
``next_segment``  the file behind the last one, made before the log needs it
``space``         room for more on the disk
``retention``     which old segments may be removed (pure)
"""
