"""Elections: when to start one, what to answer to others, and how to hand leadership over.

``rules``     pre-vote and leader stickiness (pure)
``part``      when the library may elect, and what this node tells the others
``transfer``  handing leadership over, and back to the preferred node (pure)
``handover``  the leader's part: when to hand over, and which node it tells
"""
