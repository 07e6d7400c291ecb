"""Who leads: when to start an election, what to answer to others, and how to hand over.

``rules``     pre-vote and leader stickiness (pure)
``part``      what they let the library do, and what others are told
``transfer``  handing leadership over, and back to the preferred node (pure)
``handover``  when a leader does so, and whom it tells
"""
