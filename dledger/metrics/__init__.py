"""Figures of a server for Prometheus, and whether it is well: over HTTP, on a port of their own.

Layout
------
``text``       families, samples and histograms as Prometheus reads them (pure)
``shown``      which names of very many are shown (pure)
``cached``     a page that takes a while to make, made seldom, shared by all who ask
``history``    the last hour of figures, in a ring (pure)
``requests``   a request as it was sent, and an answer to it (pure)
``admission``  who may see figures (pure)
``serving``    the port: HTTP/1.1 over trio, bounded
``pages``      the paths that every server has
``config``     the keys of a server's config
``limits``     the bounds (pure)

A server makes its page of what it counts anyway, when somebody asks; nothing is counted for the
page alone where messages pass.
"""
