"""Users, and what each may do.

``users``     making, changing, removing and listing them
``rights``    granting and revoking, and asking why something is refused
``encryption``  how a port is encrypted, and which end refuses what
``audit``     what servers have written down of changes and refusals
``suggest``   the smallest policies for what was observed (pure)
"""
