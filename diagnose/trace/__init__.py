"""A window of a run as a trace that Perfetto, chrome://tracing and like tools open.

    store --survey--> reach of hosts, arrows --.
      |                                        v
      `--some ranks at a time--> RankDrawing (tracks, slices, ends of arrows) --> JsonTrace | ProtobufTrace --> file

choice    which steps and ranks, and whether a file can hold them
survey    the first reading: who meets whom (arrows), and where each host's stamps lie
draw      the second reading, rank by rank: tracks and slices on the reference's clock (lanes keep them nested)
run_drawing    what belongs to no rank: samples
json_trace protobuf_trace    the two forms, behind ``interface.Trace``
export    all of it, into one file that is there whole or not at all
"""
