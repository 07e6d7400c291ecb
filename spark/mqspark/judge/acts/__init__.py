"""Acts of tools on topics and groups, and their consequences.

``entitled``  what a group is entitled to, where a tool has set its offset
``obeyed``    property 17
"""
