"""Many messages that were read, handled together.

``stretch``  messages of one queue, one behind the other
``many``     the result of `poll_many`
"""
