"""The parts of `eval/fidelity.py`: a raw client, the features compared, and a server of odd things."""
