"""gym-sokoban's environment, step by step, on random rooms and actions."""

import random
import sys
import types

import numpy
from golden import installed, load

WALL, FLOOR, TARGET, BOX_ON_TARGET, BOX, PLAYER = range(6)


def environment_class():
    """SokobanEnv from its file, with stand-ins for what it imports only to register and to draw itself."""

    def stand_in(name, **members):
        module = types.ModuleType(name)
        vars(module).update(members)
        sys.modules[name] = module

    stand_in("gym", Env=object)
    stand_in("gym.utils", seeding=None)
    stand_in("gym.spaces", Box=None)
    stand_in("gym.spaces.discrete", Discrete=None)
    stand_in("sokoban.room_utils", generate_room=None)
    stand_in("sokoban.render_utils", room_to_rgb=None, room_to_tiny_world_rgb=None)
    stand_in("sokoban", __path__=[])
    return load(installed("gym_sokoban") / "envs" / "sokoban_env.py", "sokoban.sokoban_env").SokobanEnv


def room(source, boxes):
    """Fixed cells and state of a room of 6x6, with boxes on targets now and then."""
    fixed = numpy.full((6, 6), WALL)
    inside = [(r, c) for r in range(1, 5) for c in range(1, 5)]
    for cell in inside:
        fixed[cell] = WALL if source.random() < 0.1 else FLOOR
    free = [cell for cell in inside if fixed[cell] == FLOOR]
    source.shuffle(free)
    for cell in free[:boxes]:
        fixed[cell] = TARGET
    state = fixed.copy()
    places = free[:]
    source.shuffle(places)
    for cell in places[:boxes]:
        state[cell] = BOX_ON_TARGET if fixed[cell] == TARGET else BOX
    player = places[boxes]
    state[player] = PLAYER
    return fixed, state, player


def nearly_solved(source):
    """A room whose box is two pushes to the right from its target; others may be missing."""
    fixed, state, _ = room(source, 1)
    row = source.randint(1, 4)
    fixed[fixed == TARGET] = FLOOR
    fixed[row, 1:5] = [FLOOR, FLOOR, FLOOR, TARGET]
    state = fixed.copy()
    state[row, 2], state[row, 1] = BOX, PLAYER
    return fixed, state, (row, 1)


def text(fixed, state):
    return "".join("".join("#_.*$@"[s] if s != PLAYER or f != TARGET else "+" for f, s in zip(*row)) + "\n"
                   for row in zip(fixed, state))


def lines(count):
    Environment = environment_class()
    source = random.Random(6)
    for _ in range(count):
        easy = source.random() < 0.5
        boxes = 1 if easy else source.choice([1, 2])
        game = Environment.__new__(Environment)
        game.penalty_for_step, game.penalty_box_off_target = -0.1, -1
        game.reward_box_on_target, game.reward_finished = 1, 10
        game.num_boxes, game.max_steps, game.num_env_steps = boxes, 10**9, 0
        game.room_fixed, game.room_state, player = nearly_solved(source) if easy else room(source, boxes)
        game.player_position = numpy.array(player)
        # Its reset() begins with 0, as its own rooms have no box on a target.
        game.boxes_on_target = int((game.room_state == BOX_ON_TARGET).sum())
        game.render = lambda mode: None
        line = {"level": text(game.room_fixed, game.room_state), "steps": []}
        for _ in range(source.randint(10, 40)):
            action = 4 if easy and source.random() < 0.7 else source.randint(0, 4)
            _, reward, done, _ = game.step(action)
            line["steps"].append({"action": action, "reward": reward, "done": bool(done),
                                  "text": text(game.room_fixed, game.room_state)})
            if done and source.random() < 0.9:
                break
        yield line
