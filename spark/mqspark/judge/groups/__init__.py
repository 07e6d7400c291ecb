"""Groups of consumers: the answers and the messages that they are given.

``commits``     property 8
``outputs``     property 14
``popped``      property 15
``priorities``  property 16
"""
