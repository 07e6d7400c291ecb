"""The members of a group, and how they change.

``configuration``  the members, and how they may change (pure)
``members``        the configurations in this node's log, kept over restarts
``changes``        a leader adds and removes members, one at a time
``joining``        how a node joins its group: new, with an emptied folder, or after too long
``eligibility``    which nodes may vote and are counted (pure)
"""
