"""`python -m eventq`: the command line."""

try:
    from eventq.cli import main

    main()
except KeyboardInterrupt:  # while the program is read
    raise SystemExit(130) from None
