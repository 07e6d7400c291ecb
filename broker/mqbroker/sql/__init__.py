"""SQL92 filters: conditions over a message's properties, such as ``a > 5 AND b = 'x'``. Pure.

``lexer``   characters into tokens
``parser``  tokens into a condition, or the reason why they are none
``logic``   what a condition comes to: true, false or unknown

The language is RocketMQ's (its SelectorParser, itself out of ActiveMQ): ``=``, ``<>``, ``>``,
``>=``, ``<``, ``<=``, ``[NOT] BETWEEN``, ``[NOT] IN`` with strings, ``IS [NOT] NULL``, ``[NOT]
CONTAINS``, ``STARTSWITH`` and ``ENDSWITH`` with a string, ``AND``, ``OR``, ``NOT``, brackets,
numbers, ``'strings'``, ``TRUE``, ``FALSE``, comments. Names of properties keep their case, keywords
don't.

Properties are text. Against a number they are compared as numbers, against TRUE or FALSE as words.
A comparison with a property that is missing, or that is no number where one is needed, is unknown,
and so is what depends on it; only what is true is delivered. (RocketMQ gives up the whole condition
where a property is no number. There, too, NOT takes the next word before ``=`` does; here it takes
the whole comparison, as in SQL.)
"""

from __future__ import annotations

from mqbroker.sql.parser import Filter, parse_condition

__all__ = ["Filter", "parse_condition"]
