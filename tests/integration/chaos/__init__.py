"""Chaos: a seeded schedule disturbs real ranks, agent, collectors and store. At the end, every record is stored or
reported as lost.

    schedule (pure, seeded)  -->  world (real processes, relays, small disks)  -->  quiet  -->  account: recorded
                                                                                               - lost = stored
"""
