"""Messages that wait for their time.

``delays``      where they wait (pure)
``deliveries``  delivers those that are due
``repeats``     messages that come again and again (pure)
"""
