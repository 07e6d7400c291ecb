"""What is kept for groups of consumers.

``subscriptions``  their configs (pure)
``offsets``        how far each has consumed each queue (pure)
``locks``          queues that one client holds (pure)
"""
