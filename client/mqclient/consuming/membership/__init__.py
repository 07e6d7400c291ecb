"""Being a member of a consumer group: what brokers learn, and what they say.

``presence``      heartbeats, and answers to what brokers ask and announce
``notices``       what brokers send to members by themselves (pure)
``filters``       asks a broker whether it can read what is wanted of a topic
"""
