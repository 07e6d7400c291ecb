"""Hooks that are ready to use: an application imports what it wants, with what that needs.

``codecs``                 JSON, msgspec structs, pydantic models as the values of messages
``opentelemetry``          a span for each send and each handler, linked by the message
``opentelemetry_metrics``  numbers of clients for OpenTelemetry
``prometheus``             numbers of clients for prometheus-client
"""
