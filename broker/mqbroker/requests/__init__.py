"""What clients ask, and what they are answered.

``dispatch``     finds the handler of a code
``needs``        what a code needs: the leader, or nothing
``sending``      messages in
``reading``      messages out
``groups``       who is there, and how far they are
``admin``        operators' tools
``forwarding``   followers pass tools' changes on to their leader
``unsupported``  why some codes have no handler
``core``         what all handlers work with
``replies``      answers that come later than their request was handled
"""
