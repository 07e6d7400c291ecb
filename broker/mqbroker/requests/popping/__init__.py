"""POP: messages handed out for a time, instead of queues to members.

``pop``          hands messages out
``giving_back``  acks, and other times for what was handed out
``questions``    looks that hand nothing out
``modes``        which groups pop which topics
``asking``       what requests ask for, and whether they may
``planning``     what a pop takes of which queues (pure)
``pops``         appends pops
``settling``     appends acks and changes, many in one entry
``giving_up``    appends copies of messages that are sent back, with their acks
``held_pops``    pops that wait (pure)
``waiting``      the loop behind all of them
"""
