"""Several nodes of this machine as processes of one command: `moldau cluster` and `moldau serve --cores`.

command ──▶ Supervisor (decides, without I/O) ──▶ effects ──▶ Processes (starts, signals, merges the logs)
                 ▲                                                │
                 └──── a process serves, has ended; a signal; time ┘
"""
