"""Evidence of a violation: the history's lines and the replicas' bytes, for readers who doubt it.

``collecting``  an exhibit for each of the first violations of every property
``lines``       the lines of a history that a violation is about
``held``        what a replica has at a position of its log
"""
