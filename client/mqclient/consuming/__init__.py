"""Reading as a member of a group.

``consumer``       the face
``member``         joins its group, and leaves
``steering``       its calls about queues and positions
``subscriptions``  what is wanted of a topic (pure)
``sharing``        which queues are read, and where their offsets are kept
``popping``        messages for a time, instead of queues
``columns``        many messages, by column
``transacting``    messages, and what comes of them, in one step
``membership``     being a member of the group
``assignment``     which queues are this consumer's
``fetching``       reads them ahead
``turns``          whose turn it is among the queues (pure)
``lanes``          what is handled side by side, what one after the other (pure)
``handling``       hands messages to a handler
``measuring``      what a consumer counts, for whoever collects it
``handout``        hands them to who asks
``sending_back``   messages that could not be handled: they come again, or are given up
``progress``       how far a queue has come (pure)
``unfinished``     what of it is in the application's hands (pure)
"""
