"""Explanations: why a candidate stands where it stands. Off unless a setting turns them on.

From top to bottom, each knows only what stands below it:

===================  =====================================================================
``explainer``        one worker's: admission of its own, from a request to its answer
``process_link``     the worker's end of the pipe: starts the process, asks it, stops it
``explain_process``  the process that explains, on time that nobody else wants
``metrics``          counts
===================  =====================================================================

Nothing of it is imported where it is off.
"""
