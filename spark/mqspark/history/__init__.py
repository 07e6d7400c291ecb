"""A history: what clients did and were answered, and the run that it describes.

``files``    a history's files, and the run's metadata
``events``   a history's lines as columns
``packing``  a history as Parquet
"""
