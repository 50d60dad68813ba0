"""The page at ``/ui/``: static files, and a bundle's data for them. Imported only where it is wanted.

===========  ==================================================================
``routes``   the paths of the page, and which of them need no key
``files``    the static files with their headers
``about``    ``GET /ui/bundle``: golden lists, quantiles, the held-out table
``static/``  the page: ES modules without a build step; ``docs/page.md``
===========  ==================================================================
"""
