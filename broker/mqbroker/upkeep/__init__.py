"""What a broker does now and then: old messages go, the disk is looked at, files are mended.

``retention``   which messages go
``disk_space``  how full the disk is, and what follows
``mending``     makes damaged files again
``alarm``       when a loop has something to do next
"""
