"""What tools do to topics and groups, and what follows from it.

``entitled``  what a group is entitled to, where a tool has set its offset
``obeyed``    property 17
"""
