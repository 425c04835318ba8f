"""Read-only operations on stored runs, for other programs.

operations.py       the list of operations; start reading here
parameters.py       what each operation takes, with its limits
answers.py          runs, steps, findings, stalls, goodput, comparison
pictures.py         heat map, timeline
results.py          what each operation returns; report_results.py has the reports of commands
calling.py          calls an operation in a thread, a few at a time
routes.py           the operations as JSON routes, with their OpenAPI document

The JSON routes of the dashboard and ``rankscope mcp`` call the same operations, so their answers are equal.
"""
