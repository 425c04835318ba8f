"""A window of a run as a trace for Perfetto, chrome://tracing and similar tools.

    store --survey--> reach of hosts, arrows --.
      |                                        v
      `--some ranks at a time--> RankDrawing (tracks, slices, ends of arrows) --> JsonTrace | ProtobufTrace --> file

choice     which steps and ranks, and whether a file can hold them
survey     the first reading: arrows between operations, and the time range of each host
draw       the second reading, rank by rank: tracks and slices on the reference clock; samples and marks
profiles   Kineto traces that join the window: read, checked, and placed in steps
draw_profile    their slices and flows in the processes of their ranks
drawing    the result, independent of the format
json_trace, protobuf_trace    the two formats, behind ``export.Trace``
export     everything, into one complete file or none
"""
