"""Faults in the files that a broker makes from its log, for both judges of property 18.

``plants``  the faults, and what only looks odd
``served``  such files, as plants change them
"""
