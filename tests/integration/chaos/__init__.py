"""Chaos: real ranks, agent, collectors and store, disturbed by a seeded schedule; at the end every record is accounted
for.

    schedule (pure, seeded)  -->  world (real processes, relays, small disks)  -->  quiet  -->  account: recorded
                                                                                               - lost = stored
"""
