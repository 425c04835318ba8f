"""The dashboard: web pages about runs.

app.py         the application; start reading here
serving/       what happens between a request and its answer: callbacks, drawing, updates
pages/         one folder for each page, and what all pages share: frame, controls, panels
figures/       plotly figures as pure functions of records
data/          cached queries
view_state.py  what a page shows, as an object; address.py reads it from an address, defaults.py fills the gaps
records.py     the records that pages and figures are drawn from; wording.py formats their numbers
components.py  our Dash components; their browser part is in assets/
"""
