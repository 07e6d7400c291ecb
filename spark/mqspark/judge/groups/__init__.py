"""What groups of consumers are told, and given.

``commits``     property 8
``outputs``     property 14
``popped``      property 15
``priorities``  property 16
"""
