"""pokerkit's no-limit Texas hold'em between two players, on random cards, stacks and actions; and its order of hands."""

import random
import warnings

from pokerkit import Automation, NoLimitTexasHoldem, StandardHighHand

warnings.simplefilter("ignore")  # it burns cards of its own, which may be dealt here later
DECK = [rank + suit for rank in "23456789TJQKA" for suit in "cdhs"]


def play(source):
    """One hand as a line: what was dealt, what was done, what both have at the end."""
    cards = source.sample(DECK, 9)
    stacks = [100, 100] if source.random() < 0.5 else [source.choice([2, 3, 5, 20, 60, 150]) for _ in range(2)]
    button = source.randrange(2)
    # pokerkit's player 1 has the button of two, and posts the small blind.
    order = [1 - button, button]
    state = NoLimitTexasHoldem.create_state(
        (
            Automation.ANTE_POSTING, Automation.BET_COLLECTION, Automation.BLIND_OR_STRADDLE_POSTING,
            Automation.CARD_BURNING, Automation.HOLE_CARDS_SHOWING_OR_MUCKING, Automation.HAND_KILLING,
            Automation.CHIPS_PUSHING, Automation.CHIPS_PULLING,
        ),
        True, 0, (1, 2), 2, [stacks[player] for player in order], 2,
    )  # fmt: skip
    for player in order:
        state.deal_hole("".join(cards[2 * player : 2 * player + 2]))
    board = cards[4:]
    steps = []
    wild = source.random()
    while state.status:
        if state.can_deal_board():
            count = 3 if not state.board_cards else 1
            state.deal_board("".join(board[:count]))
            board = board[count:]
            continue
        step = {"to_act": order[state.actor_index], "to_call": state.checking_or_calling_amount}
        least = state.min_completion_betting_or_raising_to_amount
        step["raise"] = None if least is None else [least, state.max_completion_betting_or_raising_to_amount]
        step["pot"] = state.total_pot_amount
        roll = source.random()
        if step["raise"] and roll < 0.2 + 0.4 * wild:
            low, high = step["raise"]
            amount = source.choice([low, high, source.randint(low, high)])
            state.complete_bet_or_raise_to(amount)
            step["action"] = f"raise {amount}"
        elif step["to_call"] and roll > 0.9:
            state.fold()
            step["action"] = "fold"
        else:
            state.check_or_call()
            step["action"] = "call"
        steps.append(step)
    final = [state.stacks[order.index(player)] for player in range(2)]
    return {"cards": cards, "stacks": stacks, "button": button, "steps": steps, "final": final}


def compare(source):
    """Two hands of seven cards as a line, and which is better: 1, 0 or -1."""
    cards = source.sample(DECK, 9 if source.random() < 0.7 else 14)
    first = cards[:7]
    second = cards[:5] + cards[7:9] if len(cards) == 9 else cards[7:]
    values = [StandardHighHand.from_game("".join(seven)) for seven in (first, second)]
    return {"first": first, "second": second, "better": (values[0] > values[1]) - (values[0] < values[1])}


def lines(count):
    source = random.Random(12)
    for i in range(count):
        yield play(source) if i % 2 == 0 else compare(source)
