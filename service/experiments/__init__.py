"""Experiments on traffic: shadow, split, interleave, explore. Off unless a setting names their file.

From top to bottom, each knows only what stands below it:

=================== ====================================================================
``live``            all of one worker: choice, ranking and shown order of a request, status
``shadow``          the thread that has lists ranked in the background
``shadow_process``  the process that ranks them, while its core is idle
``roster``          experiments with the bundles that they name, and what is counted
``experiment_file`` the file and the kill switch, read at intervals
=================== ====================================================================

It is imported only if there are any.
"""
