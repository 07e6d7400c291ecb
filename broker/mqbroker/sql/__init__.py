"""SQL92 filters: conditions over a message's properties, such as ``a > 5 AND b = 'x'``. Pure.

``lexer``   characters into tokens
``parser``  tokens into a condition, or an error
``logic``   the value of a condition: true, false or unknown

The language is RocketMQ's (its SelectorParser, itself out of ActiveMQ): ``=``, ``<>``, ``>``,
``>=``, ``<``, ``<=``, ``[NOT] BETWEEN``, ``[NOT] IN`` with strings, ``IS [NOT] NULL``, ``[NOT]
CONTAINS``, ``STARTSWITH`` and ``ENDSWITH`` with a string, ``AND``, ``OR``, ``NOT``, brackets,
numbers, ``'strings'``, ``TRUE``, ``FALSE``, comments. Names of properties keep their case, keywords
don't.

Properties are text. They are compared with numbers as numbers, and with TRUE or FALSE as words. A
comparison is unknown if its property is missing, or is no number where one is needed, and so is a
condition that depends on it. Only messages for which the condition is true are delivered. (Two
differences to RocketMQ: there the whole condition fails if a property is no number, and NOT binds
to the next word before ``=`` does; here it negates the whole comparison, as in SQL.)
"""

from __future__ import annotations

from mqbroker.sql.parser import Filter, parse_condition

__all__ = ["Filter", "parse_condition"]
