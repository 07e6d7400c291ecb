"""What can be done to a cluster.

``fault``       what a fault has, and kills
``generator``   plans of faults from a seed (pure)
``power_loss``  power losses of whole machines
``ext4``        file systems that can lose their power
"""
