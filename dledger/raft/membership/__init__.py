"""Who belongs to a group, and how that changes.

``configuration``  who belongs, and how that may change (pure)
``members``        the configurations in this node's log, kept over restarts
``changes``        a leader adds and removes members, one at a time
``joining``        how a node joins its group: new, with an emptied folder, or after too long
``seat``           who may vote and is counted (pure)
"""
