"""Answers of nodes to questions, and what was known before these were asked.

``freshness``  property 12
``questions``  what was known before a question was asked
"""
