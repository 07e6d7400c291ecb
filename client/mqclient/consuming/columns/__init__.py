"""Many messages that were read, handled together.

``batch``    messages of one queue, one behind the other
``many``     the result of `poll_many`
"""
