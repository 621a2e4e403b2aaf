"""``python -m campaigns NAME --seed N --minutes M``."""

from campaigns.run import main

if __name__ == "__main__":
    raise SystemExit(main())
