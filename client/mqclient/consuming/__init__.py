"""Reading as a member of a group.

``consumer``       the face
``subscriptions``  what is wanted of a topic (pure)
``filters``        asks a broker whether it can be
``assignment``     which queues are this consumer's
``fetching``       reads them ahead
``handout``        hands messages over, and notes what is done
``sending_back``   messages that could not be handled: they come again, or are given up
``progress``       how far a queue has come (pure)
``running_info``   what operators are told (pure)
"""
