"""Experiments on traffic: shadow, split, interleave, explore. Off unless a setting names their file.

From top to bottom, each knows only what stands below it:

================== ====================================================================
``opening``        whether there are experiments at all
``live``           all of one worker: chooses for each request, and says what runs
``trial``          one request in one experiment: who ranks it, the shown order
``shadow``         the thread that has lists ranked in the background
``shadow_process`` the process that ranks them, while its core is idle
``failures``       challengers that fail again and again
``roster``         experiments with the bundles that they name
``watch``          the file and the kill switch, looked at every so often
``definition``     what the file says
``metrics``        counts
``protocol``       what the request path knows
================== ====================================================================

``opening`` and ``protocol`` alone are imported where there are none.
"""
