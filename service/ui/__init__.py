"""The page at ``/ui/``: static files, and a bundle's data for them. Imported only where it is wanted.

===========  ==================================================================
``routes``   the paths of the page, its static files, and ``GET /ui/bundle``
``static/``  the page: ES modules without a build step; ``docs/page.md``
===========  ==================================================================
"""
